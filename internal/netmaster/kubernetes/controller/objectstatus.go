package controller

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
)

// sameTenant and those below tell whether the store has what an object says, as its.
func sameTenant(v *control.View, want model.Tenant, object string) bool {
	have, there := v.Tenants.Get(want.Name)
	return there && have.Object == object && have.DefaultNetwork == want.DefaultNetwork && slices.Equal(have.Shared, want.Shared)
}

func sameNetProfile(v *control.View, want model.NetProfile, object string) bool {
	have, there := control.NetProfile(v, want.Key)
	want.Object = object
	return there && have == want
}

func sameNetwork(v *control.View, want model.Network, object string) bool {
	have, there := v.Networks.Get(want.Key)
	if !there {
		return false
	}
	if want.ReqTag == 0 || want.ReqTag == have.Tag {
		want.ReqTag = have.ReqTag
	}
	want.Tag, want.ID, want.Identity, want.RawSubnet, want.RawSubnet6 = have.Tag, have.ID, have.Identity, have.RawSubnet, have.RawSubnet6
	want.Object = object
	return have == want
}

func samePolicy(v *control.View, want model.PolicyWithRules, object string) bool {
	have, there := v.Policies.Get(want.Policy.Key)
	general := want.General()
	general.Policy.Object = object
	model.SortRules(general.Rules)
	return there && have.Equal(general.Policy) && slices.EqualFunc(v.Policies.AnyRulesOf(have.Key), general.Rules, model.PolicyRule.Equal)
}

func sameGroup(v *control.View, want model.Group, object string) bool {
	have, there := v.Groups.Get(want.Key)
	if !want.Pool.IsValid() {
		want.Pool = have.Pool // it cannot change
	}
	return there && have.Object == object && have.Network == want.Network && have.Pool == want.Pool && have.NetProfile == want.NetProfile &&
		have.CfgdTag == want.CfgdTag && slices.Equal(have.Policies, want.Policies) && slices.Equal(have.ExtContracts, want.ExtContracts)
}

// writeBackOf is what is to be written on an object.
func (p *objectSync) writeBackOf(now objects.Object, out objectOutcome) *WriteBack {
	k := objects.Owned(now)
	owner, there := p.view.OwnerOf(k)
	mine := there && owner == now.GetName()
	s := objects.Status{ObservedGeneration: now.GetGeneration(), Key: k.Key}
	switch {
	case there && owner != "":
		s.Owner = string(model.OwnerKubernetes)
	case there:
		s.Owner = string(model.OwnerUser)
	}
	if there {
		p.count(&s, k)
	}
	c := metav1.Condition{Type: objects.Ready, Status: metav1.ConditionTrue, Reason: objects.ReasonApplied, ObservedGeneration: s.ObservedGeneration}
	reason := objects.Reason(out.err)
	switch {
	case now.GetDeletionTimestamp() != nil && out.err != nil:
		c.Reason, c.Message = reason, "It is to go, and waits: "+out.err.Error()
	case there && owner == "" && objects.Adopts(now) && out.err != nil: // it may have it, but not so
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, "It is not taken over: "+out.err.Error()
	case there && !mine:
		c.Status, c.Reason = metav1.ConditionFalse, objects.ReasonOwned
		c.Message = "Nothing of this object is in force, and deleting it deletes nothing: " + notOwned(k, owner)
	case out.err != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, out.err.Error()
	case len(out.missing) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, objects.ReasonMissing
		c.Message = "Stored without missing objects, and retried until they exist: " + strings.Join(out.missing, "; ")
	}
	const most = 4096
	if len(c.Message) > most {
		c.Message = strings.ToValidUTF8(c.Message[:most], "") + "…"
	}
	c.LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
	for _, old := range now.GetStatus().Conditions {
		if old.Type == c.Type && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	s.Conditions = []metav1.Condition{c}
	return &WriteBack{Status: s, Waits: mine}
}

// notOwned says whose something is, and how an object gets it.
func notOwned(k model.Owned, owner string) string {
	if owner != "" {
		return k.String() + " belongs to " + model.Ownership{Owned: k, Object: owner}.Resource() + ", which was there before."
	}
	return k.String() + " was made by REST or netctl, and is its users'. The annotation " + objects.Adopt + `: "true" on this object takes it over.`
}

// count enters what users expect to see of what an object stands for.
func (p *objectSync) count(s *objects.Status, k model.Owned) {
	number := func(n int) *int64 {
		x := int64(n)
		return &x
	}
	switch k.Kind {
	case "tenant":
		t := model.TenantName(k.Key)
		s.Networks, s.Groups = number(len(p.view.Networks.List(t))), number(len(p.view.Groups.List(t)))
	case "network":
		if key, err := model.ParseNetworkKey(k.Key); err == nil {
			n, _ := p.view.Networks.Get(key)
			s.PktTag, s.Groups = int64(n.Tag), number(len(p.view.Groups.OfNetwork(key)))
		}
	case "policy":
		if key, err := model.ParsePolicyKey(k.Key); err == nil {
			s.Rules, s.Groups = number(len(p.view.Policies.AnyRulesOf(key))), number(len(p.view.Groups.OfPolicy(key)))
		}
	case "netprofile":
		if key, err := model.ParseNetProfileKey(k.Key); err == nil {
			s.Groups = number(len(p.view.Groups.OfNetProfile(key)))
		}
		return
	}
	s.Endpoints = number(p.view.Endpoints.EndpointsOf(k))
}
