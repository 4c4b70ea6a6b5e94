"""What is compared with what, one file per comparison."""
