"""The laboratory: tasks, training runs, networks on one machine, and reports."""
