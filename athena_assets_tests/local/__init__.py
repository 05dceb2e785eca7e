"""Tests of the embedded AWS, over HTTP as its users see it."""
