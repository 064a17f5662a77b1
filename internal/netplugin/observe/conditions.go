package observe

import (
	"log/slog"
	"maps"
	"sync"
)

// The objects of the host's standing, for SetCondition.
const (
	AboutName        = "host name"
	AboutStore       = "store"
	AboutAttachments = "attachments"
)

// conditions is what is wrong with the host's place in the cluster, and with what the
// agent keeps, beside what the data plane reports: a sentence for each object. The
// sentences show in the log when they come and go, in /debug/state, in the host's
// status and, by the conditions of health.go, in /healthz.
type conditions struct {
	log     *slog.Logger
	changed func()

	mu    sync.Mutex
	texts map[string]string
}

// set says what is wrong with an object; "" = nothing any more.
func (c *conditions) set(object, text string) {
	c.mu.Lock()
	was := c.texts[object]
	if text == "" {
		delete(c.texts, object)
	} else {
		c.texts[object] = text
	}
	c.mu.Unlock()
	switch {
	case was == text:
		return
	case text != "":
		c.log.Error("this host has a problem", "object", object, "problem", text)
	default:
		c.log.Info("a problem is solved", "object", object)
	}
	c.changed()
}

func (c *conditions) all() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.texts)
}

// SetCondition says what is wrong with an object of the host's standing; "" = nothing
// any more.
func (a *Observer) SetCondition(object, text string) { a.conditions.set(object, text) }
