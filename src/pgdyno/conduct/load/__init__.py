"""Load hosts: reach them, let them reach the server, and measure what each can send."""
