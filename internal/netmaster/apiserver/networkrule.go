package apiserver

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
)

// networkRulePath is where one rule of a network policy is.
const networkRulePath = "/api/v1/networkPolicys/{key}/rules/{rule}"

func (s *server) handleNetworkRules() {
	s.router.handle("GET", networkRulePath, access.View|access.OwnTenants, ofNetworkRule, s.objects.networkRule)
	s.router.handle("PUT", networkRulePath, access.OwnTenants, ofNetworkRule, s.objects.putNetworkRule)
	s.router.handle("DELETE", networkRulePath, access.OwnTenants, ofNetworkRule, s.objects.deleteNetworkRule)
}

// ofNetworkRule is about the rule that a path names.
func ofNetworkRule(r *request) (access.Resource, error) {
	key := r.PathValue("key")
	return access.Resource{Objects: []audit.Object{{Kind: "rule", Key: key + ":" + r.PathValue("rule")}}, Tenants: []string{tenantOf(key)}}, nil
}

// networkRuleKey returns the key of the rule that a path names.
func networkRuleKey(r *request) (model.RuleKey, error) {
	return ruleKeyOf(r.PathValue("key"), r.PathValue("rule"))
}

// ruleKeyOf returns the key of a rule of a network policy.
func ruleKeyOf(policy, id string) (k model.RuleKey, err error) {
	p, err := model.ParsePolicyKey(policy)
	if err != nil {
		return k, notFound("networkPolicy", policy)
	}
	k = model.RuleKey{Tenant: p.Tenant, Policy: p.Name}
	k.Rule, err = model.ParseRuleID(id)
	return k, err
}

// readNetworkRule reads a rule of a network policy; the body may leave its id out.
func readNetworkRule(k model.RuleKey, body json.RawMessage) (valid model.Valid[model.PolicyRule], err error) {
	var o api.NetworkPolicyRule
	if err := errors.Join(strictjson.Decode(body, &o), strictPolicy.unambiguous(body)); err != nil {
		return valid, err
	}
	if strictjson.Field(body, "ruleId") == nil {
		o.RuleID = string(k.Rule)
	}
	if err := checkKey(string(k.Rule), o.RuleID); err != nil {
		return valid, err
	}
	rule, err := networkRuleFromAPI(k.PolicyKey(), o)
	if err != nil {
		return valid, err
	}
	return model.Check(rule)
}

func (s *objectHandlers) networkRule(w http.ResponseWriter, r *request) (any, error) {
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	k, err := networkRuleKey(r)
	if err != nil {
		return nil, notFound("rule", r.PathValue("key")+":"+r.PathValue("rule"))
	}
	tag(w, v, "rule", k.String())
	rule, ok := v.Policies.NetworkRule(k)
	if !ok {
		return nil, notFound("rule", k.String())
	}
	return networkRuleToAPI(rule), nil
}

// putNetworkRule adds a rule to a network policy, or replaces it.
func (s *objectHandlers) putNetworkRule(w http.ResponseWriter, r *request) (any, error) {
	var body json.RawMessage
	if _, err := decode(w, r, &body); err != nil {
		return nil, err
	}
	k, err := networkRuleKey(r)
	if err != nil {
		return nil, err
	}
	valid, err := readNetworkRule(k, body)
	if err != nil {
		return nil, err
	}
	done, err := s.put(r, "rule", k.String(), s.control.Policies.ChangeNetworkRule(valid, model.OwnerUser))
	if err != nil {
		return nil, err
	}
	warn(w, selectorWarnings(s.control.Current(), model.NetworkPolicy{Rules: []model.PolicyRule{valid.Value()}}))
	s.tagCommitted(w, r, "rule", k.String(), done)
	return networkRuleToAPI(done.Object.(model.PolicyRule)), nil //nolint:forcetypeassert // what ChangeNetworkRule reads
}

func (s *objectHandlers) deleteNetworkRule(_ http.ResponseWriter, r *request) (any, error) {
	k, err := networkRuleKey(r)
	if err != nil {
		return nil, notFound("rule", r.PathValue("key")+":"+r.PathValue("rule"))
	}
	return k.String(), s.delete(r, "rule", k.String(), s.control.Policies.DeleteNetworkRule(k, model.OwnerUser))
}
