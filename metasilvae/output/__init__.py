"""Results in the forms that people and programs read: text, one HTML page, plots."""
