import torch, torch.distributed as dist, thinwire as tw
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
def net(): 
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20,64),nn.ReLU(),nn.Linear(64,65),nn.ReLU(),nn.Linear(65,10))
def train(m, steps=4):
    r=dist.get_rank(); g=torch.Generator().manual_seed(r)
    opt=torch.optim.SGD(m.parameters(),lr=.1,momentum=.9)
    for _ in range(steps):
        opt.zero_grad()
        m(torch.randn(8,20,generator=g)).square().mean().backward()
        opt.step()
    return torch.cat([p.detach().flatten() for p in m.parameters()])
def plain(): return train(DDP(net(),bucket_cap_mb=0.01))
def dense():
    a=train(DDP(net(),bucket_cap_mb=0.01))
    m=DDP(net(),bucket_cap_mb=0.01); c=tw.compress(m,"dense"); b=train(m)
    print(len(c._layouts))
    return torch.equal(a,b),(a-b).abs().max(), len(c._layouts)
def tern():
    m=DDP(net(),bucket_cap_mb=0.01); c=tw.compress(m,"terngrad"); b=train(m)
    print(c.report())
    x=[torch.empty_like(b) for _ in range(dist.get_world_size())]
    dist.all_gather(x,b); return [torch.equal(x[0],y) for y in x]
def dense2():
    import thinwire.coders.floats as f
    old=f._divide
    f._divide=lambda x,by,out: torch.mul(x,1/by,out=out)
    try: return dense()
    finally: f._divide=old
def dense3():
    import thinwire.coders.floats as f
    old=f._divide
    f._divide=lambda x,by,out: torch.mul(x,1/by,out=out)
    import explore_work as e
    e.net2=e.net
    def odd():
        torch.manual_seed(0); return nn.Sequential(nn.Linear(20,63),nn.ReLU(),nn.Linear(63,65),nn.ReLU(),nn.Linear(65,11))
    e.net=odd
    try: return dense()
    finally: f._divide=old; e.net=e.net2
def dense4():
    import explore_work as e
    e.net2=e.net
    def big():
        torch.manual_seed(0); return nn.Sequential(nn.Linear(20,2500),nn.ReLU(),nn.Linear(2500,2000),nn.ReLU(),nn.Linear(2000,11))
    e.net=big
    try:
        a=train(DDP(net()))
        m=DDP(net()); c=tw.compress(m,"dense"); b=train(m)
        return torch.equal(a,b),(a-b).abs().max(), len(c._layouts)
    finally: e.net=e.net2
