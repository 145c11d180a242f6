"""Studies on real gradients: they are recorded while a model trains, then compressed in many ways."""
