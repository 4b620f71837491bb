"""Tables: frames in, headings and cells out."""
