package hostnet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// comment marks our rules in chains of Docker or the administrator.
const comment = "contiv"

// passFirewall lets containers' forwarded packets through a firewall that drops
// forwarded packets by default. A packet must be accepted by every chain of its
// hook, so an accept in a table of our own is worth nothing: Docker, and many
// administrators, set the policy of iptables' chain FORWARD to drop, and
// exceptions belong into that chain, or into DOCKER-USER if Docker has made it.
// Docker's policy keeps anybody beyond the host from beginning connections to
// containers; our own table does the same for ours. Where the policy is to
// accept, our rules are removed from those chains.
func (s *Stack) passFirewall(p *desired.Private) error {
	six := p
	if p != nil && !p.Subnet6.IsValid() {
		six = nil
	}
	return errors.Join(passFirewall(nftables.TableFamilyIPv4, p), passFirewall(nftables.TableFamilyIPv6, six))
}

// passFirewall does so for one family; p is nil where the family has no way out.
func passFirewall(family nftables.TableFamily, p *desired.Private) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	all, err := c.ListChains()
	if err != nil {
		if p == nil {
			return nil // a kernel without nftables has nothing of ours
		}
		return fmt.Errorf("read nftables: %w", err)
	}
	var filter []*nftables.Chain // of iptables
	var at *nftables.Chain
	var strangers []string
	for _, ch := range all {
		iptables := ch.Table.Family == family && ch.Table.Name == "filter"
		if iptables && (ch.Name == "FORWARD" || ch.Name == "DOCKER-USER") {
			filter = append(filter, ch)
		}
		if p == nil || ch.Hooknum == nil || *ch.Hooknum != *nftables.ChainHookForward || ch.Policy == nil || *ch.Policy != nftables.ChainPolicyDrop {
			continue
		}
		if iptables && ch.Name == "FORWARD" {
			at = ch
		} else if ch.Table.Family == family || ch.Table.Family == nftables.TableFamilyINet && family == nftables.TableFamilyIPv4 {
			strangers = append(strangers, ch.Table.Name+" "+ch.Name)
		}
	}
	for _, ch := range filter {
		if at != nil && ch.Name == "DOCKER-USER" {
			at = ch
		}
	}
	for _, ch := range filter {
		if err := settleRules(c, ch, ch == at, p); err != nil {
			return fmt.Errorf("chain %s: %w", ch.Name, err)
		}
	}
	if len(strangers) > 0 {
		return model.Errorf(model.ErrUnavailable, "the firewall's chains %s drop what they do not know; let interface %s through them, in and out",
			strings.Join(strangers, ", "), p.Interface)
	}
	return nil
}

// settleRules makes each of our rules be in a foreign chain once, before all
// foreign rules; with no rules wanted it removes ours.
func settleRules(c *nftables.Conn, ch *nftables.Chain, wanted bool, p *desired.Private) error {
	rules, err := c.GetRules(ch.Table, ch)
	if err != nil {
		return err
	}
	ours := slices.DeleteFunc(slices.Clone(rules), func(r *nftables.Rule) bool {
		text, _ := userdata.GetString(r.UserData, userdata.TypeComment)
		return text != comment
	})
	const needed = 2
	if wanted && len(ours) == needed && len(rules) >= needed && rules[0].Handle == ours[0].Handle && rules[1].Handle == ours[1].Handle {
		return nil
	}
	if !wanted && len(ours) == 0 {
		return nil
	}
	for _, r := range ours {
		if err := c.DelRule(r); err != nil {
			return err
		}
	}
	if wanted {
		for _, match := range [][]expr.Any{iptablesName(oif(p.Interface)), iptablesName(iif(p.Interface))} {
			c.InsertRule(&nftables.Rule{
				Table: ch.Table, Chain: ch, Exprs: append(match, accept()...),
				UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
			})
		}
	}
	err = c.Flush()
	if isMissing(err) {
		return nil // somebody has just removed the chain; the next look finds out
	}
	return err
}

// iptablesName compares as much of an interface's name as iptables does, so that
// it can list the rule.
func iptablesName(match []expr.Any) []expr.Any {
	for _, e := range match {
		if c, ok := e.(*expr.Cmp); ok {
			c.Data = c.Data[:len(strings.TrimRight(string(c.Data), "\x00"))+1]
		}
	}
	return match
}
