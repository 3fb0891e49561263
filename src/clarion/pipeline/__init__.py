"""An event → what each person hears of it. The way of an event, on one page.

    accepting    POST /v1/events: checked, stored with the work that waits for it, then answered
        │
        ├── expanding     a large audience: its people are found a chunk at a time
        ▼
    deciding     facts of the whole batch → the rules of `decide` → a verdict for each channel
        │            send now ──► in_app: is in the inbox with the same commit
        │            │            others: a job for `delivering`
        │            hold ──────► `releasing` when its time comes: the rules are asked again
        │            fold ──────► into an unread notification, or `digesting` when it is due
        │            drop ──────► written down with its reason, and that is all
        ▼
    delivering   words, then the channel's own courier: delivered, retry, rejected or gone

Whatever a job comes to is one `Entry`: it is committed whole while the job's lease lasts, or not
at all. The `worker` claims what is due and hands each kind of job to its stage.
"""
