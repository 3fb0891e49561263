"""The page `/demo`, on which two users of the demo app notify each other."""

# Of the app that `clarion init` creates; it adds something if the id is taken.
DEMO_BUNDLE_ID = "com.example.demo"
