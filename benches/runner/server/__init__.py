"""The server beside a bare handler, a bare stream and chukcha: `make bench-server`."""
