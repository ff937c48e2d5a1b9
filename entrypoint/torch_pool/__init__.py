"""What runs inside a torch-pool image: standard library only on the start path."""

VERSION = "0.1.0"
