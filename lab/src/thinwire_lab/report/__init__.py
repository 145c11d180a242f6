"""What runs gave: outcomes, comparisons, records in folders, and reports with tables and plots."""
