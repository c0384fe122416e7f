"""The only room that starts processes, opens sockets and reads clocks. It measures; it never judges."""
