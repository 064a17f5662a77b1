package main

import (
	"errors"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/flags"
)

const (
	// evictAfter is 1.x's time until a host that is away loses its endpoints.
	evictAfter = "24h"
	// evictAfterMin keeps a restart of netplugin, or of its host, from being one's end.
	evictAfterMin = time.Minute
)

func (o *options) registerEvictAfter(fs *flags.Set) {
	o.evictAfter = evictAfter
	fs.String(&o.evictAfter, "evict-after", "time", "how long a host may be away, such as 90m, before its endpoints are released; at least 1m; 0 = forever; the same for all netmasters").Must(func(v string) error { _, err := parseEvictAfter(v); return err })
}

// graceTime is how long a host may be away; 0 = for ever.
func (o *options) graceTime() time.Duration {
	d, err := parseEvictAfter(o.evictAfter)
	if err != nil {
		return 0 // it was checked
	}
	return d
}

func parseEvictAfter(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d != 0 && d < evictAfterMin {
		return 0, errors.New("must be 0, or a time such as 24h of at least 1m")
	}
	return d, nil
}
