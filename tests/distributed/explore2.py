import torch, torch.distributed as dist, time, os, signal, threading, json
from datetime import timedelta
c10d=dist.distributed_c10d
def mk(name, timeout):
    p=dist.group.WORLD
    ranks=dist.get_process_group_ranks(p)
    pg,_=c10d._new_process_group_helper(p.size(),p.rank(),ranks,dist.get_backend(p),c10d._get_default_store(),name,timeout=timedelta(seconds=timeout))
    c10d._world.pg_group_ranks[pg]={g:i for i,g in enumerate(ranks)}
    return pg
def go(victim, sig, wait_s=0.0, how="abort"):
    r=dist.get_rank(); n=dist.get_world_size()
    g=mk("a",5); w=mk("b",20)
    dist.all_reduce(torch.ones(3),group=g)
    log=[]
    t0=time.monotonic()
    if r==victim:
        os.kill(os.getpid(), sig)
    if r==(victim+1)%n: time.sleep(wait_s)
    try: dist.all_reduce(torch.ones(100),group=g); log.append("?? ok")
    except Exception as e: log.append((time.monotonic()-t0, type(e).__name__, str(e)[-120:]))
    try:
        if how=="abort": g.abort()
        if how=="shutdown": g.shutdown()
        if how=="backend": g._get_backend(torch.device("cpu")).abort()
        if how=="recvall":
            for p in range(n):
                if p==r: continue
                try: g.recv([torch.zeros(1)],p,77).wait(timedelta(milliseconds=1))
                except Exception as e: log.append(str(e)[-80:])
        if how=="destroy":
            dist.destroy_process_group(g); g=None
            import gc; gc.collect()
        if how=="recv": g.recv([torch.zeros(1)],(r+1)%n,77).wait(timedelta(milliseconds=1))
    except Exception as e: log.append(str(e)[-80:])
    log.append(("aborted",time.monotonic()-t0))
    found={}
    def hear(peer):
        try:
            s=w.send([torch.full((1024,),r,dtype=torch.uint8)],peer,0)
            b=torch.zeros(1024,dtype=torch.uint8)
            w.recv([b],peer,0).wait(timedelta(seconds=3))
            found[peer]=int(b[5])
            s.wait(timedelta(seconds=3))
        except Exception as e: found.setdefault(peer,f"{time.monotonic()-t0:.2f} {type(e).__name__} {str(e)[-150:]}")
    ts=[threading.Thread(target=hear,args=(p,),daemon=True) for p in range(n) if p!=r]
    for t in ts: t.start()
    for t in ts: t.join()
    log.append((time.monotonic()-t0,found))
    return log
