"""HTTP, live push and the console: thin faces over the runtime."""
