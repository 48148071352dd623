"""All features of a store in any order, against plain lists; docs/RELIABILITY.md."""
