"""Tables of pandas and of Hugging Face's datasets, in values that may hold code."""
