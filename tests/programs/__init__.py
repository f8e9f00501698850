"""Random training programs: what they are made of, and how each is run as it is and split."""
