"""Auto: which codec a run gets, decided by what was measured, on all ranks alike."""
