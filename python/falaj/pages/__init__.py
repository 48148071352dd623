"""Reports as one HTML file without anything from elsewhere: the page, its drawings, its figures.

Owns how a report looks, in light and dark, on a screen and on paper. `page` puts it together,
`drawing` makes the plots, `units` writes figures as people read them. What a report says is left to
whoever writes one: `falaj.demo`, `falaj.pipeline`. `drawing` needs matplotlib, the rest nothing.
"""
