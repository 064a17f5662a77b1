package control

import (
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// PolicyView is the View's part with policies of all kinds and their rules, and with what
// these take of hosts.
type PolicyView struct {
	groups     *GroupView
	identities *IdentityView
	hosts      *HostView

	mu              *sync.RWMutex // the View's
	policyRows      *rows[model.PolicyKey, model.Policy]
	ruleRows        *rows[model.RuleKey, model.PolicyRule]
	rulesOfPolicy   index[model.PolicyKey, model.RuleKey]
	rulesOfGroup    index[model.GroupKey, model.RuleKey] // that name the group
	policySizes     *sizes
	replacementRows map[model.PolicyKey]tables.Replacement
	rules           *tables.InForce
}

func newPolicyView(mu *sync.RWMutex, groups *GroupView, identities *IdentityView, hosts *HostView) *PolicyView {
	pv := &PolicyView{mu: mu, groups: groups, identities: identities, hosts: hosts}
	pv.policyRows = newRows[model.PolicyKey, model.Policy](mu, func(k model.PolicyKey) model.TenantName { return k.Tenant }, lessPolicy)
	pv.ruleRows = newRows[model.RuleKey, model.PolicyRule](mu, func(k model.RuleKey) model.TenantName { return k.Tenant }, lessRule)
	pv.reset()
	return pv
}

func (pv *PolicyView) reset() {
	pv.policyRows.reset()
	pv.replacementRows = map[model.PolicyKey]tables.Replacement{}
	pv.ruleRows.reset()
	pv.rulesOfPolicy = index[model.PolicyKey, model.RuleKey]{}
	pv.rulesOfGroup = index[model.GroupKey, model.RuleKey]{}
	pv.policySizes = &sizes{map[model.PolicyKey]ruleSum{}, map[model.PolicyKey]map[union]int{}, map[union]*model.PolicyMeter{}, map[model.PolicyKey]*model.FlowMeter{}}
	pv.rules = tables.NewInForce()
}
