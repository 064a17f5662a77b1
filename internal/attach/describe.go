package attach

import "maps"

// Description is what a runtime knows of an attachment's container once it runs.
type Description struct {
	Key
	ID      string            `json:"id"`   // of the container; Key may hold another
	Name    string            `json:"name"` // as people call it
	Labels  map[string]string `json:"labels,omitempty"`
	Stopped bool              `json:"stopped,omitempty"` // it has ended: its labels select nothing any more
}

// Equal compares two descriptions.
func (d Description) Equal(o Description) bool {
	return d.Key == o.Key && d.ID == o.ID && d.Name == o.Name && d.Stopped == o.Stopped && maps.Equal(d.Labels, o.Labels)
}
