package ebpf

import "github.com/contiv/netplugin/v2/internal/model"

// The numbers of actions in the maps. Of two rules of one priority the higher decides, in
// the order of model.Action.Rank.
const (
	actAllow = 1
	actPass  = 2
	actDeny  = 3

	// A rule's weight has the action in these bits, below the priority. What is below
	// them is free.
	actionShift = 4
	actionBits  = 2
)

var actionNumbers = map[model.Action]uint8{model.Allow: actAllow, model.Pass: actPass, model.Deny: actDeny}

// toAction returns the number of an action: what is no action denies.
func toAction(a model.Action) uint8 {
	if n, ok := actionNumbers[a]; ok {
		return n
	}
	return actDeny
}

func fromAction(n uint8) model.Action {
	for a, number := range actionNumbers {
		if number == n {
			return a
		}
	}
	return ""
}
