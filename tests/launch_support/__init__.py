"""What the tests of rank/, launch/ and runs/ share: a plan made by hand, a bundle, tiny trainers."""
