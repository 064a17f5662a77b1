package store

import (
	"context"
	"time"
)

// Server is one server of a store, as it tells of itself.
type Server struct {
	Address string
	Version string
	Size    int64 // bytes of the database; 0 = not told
	Quota   int64 // bytes that it may take; 0 = not told
	Leads   bool
	Alarms  []string      // such as model.AlarmFull
	Took    time.Duration // of the answer
	Err     error         // why nothing of the above is known; nil = it is
}

// Inspectable is a Store that can ask its servers.
type Inspectable interface {
	// Servers asks all servers that are known, each for at most two seconds.
	Servers(ctx context.Context) []Server
}
