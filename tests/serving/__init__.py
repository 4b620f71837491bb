"""Tests of the judge over HTTP."""
