"""An explorer of the protocol of a place: every order of requests, delays, losses and deaths."""
