package ovs

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
)

// mutations are the seeded faults by the names that tests of whole clusters use.
var mutations = map[string]pipeline.Mutation{
	"":                pipeline.NoMutation,
	"allow-wins-ties": pipeline.AllowWinsTies,
	"no-reply-mirror": pipeline.NoReplyMirror,
	"no-ingress":      pipeline.NoIngress,
}

// Mutated returns a configuration whose driver is wrong in a known way, so that
// a test of a whole cluster can show that it would notice; an empty name
// changes nothing. For tests only.
func (c Config) Mutated(name string) (Config, error) {
	m, ok := mutations[name]
	if !ok {
		return c, fmt.Errorf("seeded fault %q: does not exist", name)
	}
	c.mutation = m
	return c, nil
}
