"""TernGrad's Figure 5, regenerated: what the paper drew, what the model says, also of our own formats."""
