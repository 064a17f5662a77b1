package attach

import "maps"

// Fact is what an orchestrator tells of a container, however it learns it. What
// it does not tell (the zero value) stays as it is.
type Fact struct {
	Key
	// Rev is when it was true, in the count of the orchestrator that runs the
	// container: its revision of the object, or any number that only grows. Of an
	// attachment's facts one with a lower Rev than another before it is old and
	// changes nothing. 0 = as of now.
	Rev    int64             `json:"rev,omitempty"`
	ID     string            `json:"id,omitempty"`     // of the container, where Key.Container is another
	Name   string            `json:"name,omitempty"`   // as people call it
	Labels map[string]string `json:"labels,omitzero"`  // all labels of the container beside the ones in its Request; nil = not told
	Health string            `json:"health,omitempty"` // Healthy or Unhealthy, as its health check says
	Ended  bool              `json:"ended,omitempty"`  // it has stopped: its labels select nothing any more
}

// What a health check says of a container; one without a check is healthy.
const (
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// Equal compares what two facts say, whenever it was true.
func (f Fact) Equal(o Fact) bool {
	return f.Key == o.Key && f.ID == o.ID && f.Name == o.Name && f.Ended == o.Ended && f.Health == o.Health &&
		(f.Labels == nil) == (o.Labels == nil) && maps.Equal(f.Labels, o.Labels)
}

// Merge returns what both facts say together; where both say something, f counts.
func (f Fact) Merge(old Fact) Fact {
	if f.ID == "" {
		f.ID = old.ID
	}
	if f.Name == "" {
		f.Name = old.Name
	}
	if f.Health == "" {
		f.Health = old.Health
	}
	if f.Labels == nil {
		f.Labels = old.Labels
	}
	return f
}
