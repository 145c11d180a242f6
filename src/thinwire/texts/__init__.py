"""What users write and read as text: names, options, rates, numbers of things."""
