"""What runs on the host: engine, bases, render, build, gate, report."""
