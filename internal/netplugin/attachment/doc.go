// Package attachment is what containers' runtimes ask of a host: it attaches and
// detaches containers, publishes their ports, and keeps a journal of it all.
//
// It guarantees: Attach answers when the port is programmed at the endpoint's
// revision or later; Detach always succeeds on what is absent, and what it
// cannot release at once is owed and paid later; whatever step of an attachment
// the process dies at, the next start leaves nothing of it behind; what runs here
// is put back into a store that lacks it.
//
// It must not know which orchestrator asks, or write to the store: endpoints it
// asks a netmaster for.
package attachment
