package desired

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
)

// DefaultRESTPort is where netplugins serve inspection unless they say otherwise.
const DefaultRESTPort = 9006

// TierControl keeps containers from the control plane before any policy.
const TierControl model.Tier = 1

// ControlRuleID names the rule that denies a port of the control plane.
func ControlRuleID(port uint16) string { return fmt.Sprintf("control-plane/%d", port) }
