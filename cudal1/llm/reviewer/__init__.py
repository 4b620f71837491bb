"""The reviewer, a language model that may veto: its examples, its question and its answer."""
