"""Reports as one HTML file without anything from elsewhere: the page, its drawings, its figures.

Owns how a report looks, in light and dark, on a screen and on paper. `page` puts it together,
`drawing` makes the plots, `units` writes figures as people read them. `falaj.demo` and
`falaj.pipeline` own what their reports say. `drawing` needs matplotlib, the other modules nothing.
"""
