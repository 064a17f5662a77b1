package control

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Rules of a policy that change together, and are more than one transaction takes, are a
// tables.Replacement:
//
//	begin    a row says that the rules of the policy are being replaced, and by whom
//	stage    the new state of each changed rule, in as many transactions as it takes;
//	         each compares that the row is still there
//	switch   one transaction marks the row as Done, and from then on the staged rules
//	         are in force, for netmasters and for hosts (tables.InForce)
//	settle   the staged rules become rows of Rules; then the row goes
//
// Until the switch only references change, which count for nothing without a rule that
// names their target. Any other change of the policy's rules finds the row and settles
// first. Before the switch that deletes everything staged, and the stager gets a conflict.
// If a netmaster stops in between, the next change settles its replacement, or the leader
// does (sweepReplacements).

// maxSettled is how often one use-case settles before it tells of a conflict.
const maxSettled = 3

// replacementError refuses a change of a policy's rules while they are being replaced.
type replacementError struct{ policy model.PolicyKey }

func (e *replacementError) Error() string {
	return fmt.Sprintf("the rules of policy %q are being replaced by another client; try again", e.policy)
}

func (e *replacementError) Unwrap() error { return model.ErrConflict }

// checkNoReplacement makes the commit fail while the policy's rules are being replaced: otherwise the
// rows of Rules are in force.
func checkNoReplacement(tx store.Tx, p model.PolicyKey) error {
	row, err := tables.Replacements.Find(tx, tables.ReplacementKey(p))
	if err == nil && row.Exists() {
		err = &replacementError{p}
	}
	return err
}

// dropReplacement takes away a replacement with all that is staged.
func dropReplacement(tx store.Tx, p model.PolicyKey) {
	tables.StagedRules.DeleteScope(tx, tables.StagedOf(p))
	tables.Replacements.Delete(tx, tables.ReplacementKey(p))
}

// rulesInForce reads the rules of a policy, with those staged that are in force.
func rulesInForce(tx store.Tx, p model.PolicyKey) ([]model.PolicyRule, error) {
	rules, err := tables.Rules.List(tx, tables.RulesOf(p))
	if err != nil {
		return nil, err
	}
	row, err := tables.Replacements.Peek(tx, tables.ReplacementKey(p))
	if err != nil || !row.Value.Done {
		return rules, err
	}
	staged, err := readStaged(tx, p)
	if err != nil {
		return nil, err
	}
	all := map[model.RuleKey]model.PolicyRule{}
	for _, r := range rules {
		all[r.Key] = r
	}
	for _, s := range staged {
		if delete(all, s.Key); s.Rule != nil {
			all[s.Key] = *s.Rule
		}
	}
	return slices.Collect(maps.Values(all)), nil
}

func readStaged(tx store.Tx, p model.PolicyKey) ([]tables.StagedRule, error) {
	kvs, err := tx.Range(tables.StagedOf(p), 0)
	if err != nil {
		return nil, err
	}
	out := make([]tables.StagedRule, len(kvs))
	for i, kv := range kvs {
		row, err := tables.StagedRules.Decode(kv)
		if err != nil {
			return nil, err
		}
		out[i] = row.Value
	}
	return out, nil
}

// replaceStaged makes a network policy and its rules what they are in n.
func (ps *Policies) replaceStaged(ctx context.Context, u *usecase, n model.NetworkPolicy) (err error) {
	k, id, what := n.Policy.Key, rand.Text(), fmt.Sprintf("replace the rules of policy %q", n.Policy.Key)
	var peers []namedSelector
	for i, r := range n.Rules {
		peers = append(peers, peerSelectors(fmt.Sprintf("rules[%d]", i), r)...)
	}
	rev, err := u.update(ctx, what, func(tx store.Tx) error {
		if err := tx.Prefetch(tables.Tenants.Key(k.Tenant), tables.Policies.Key(k), tables.Replacements.Key(tables.ReplacementKey(k))); err != nil {
			return err
		}
		if _, err := tables.Tenants.Get(tx, k.Tenant); err != nil {
			return err
		}
		old, err := tables.Policies.Find(tx, k)
		if err != nil {
			return err
		}
		if old.Exists() {
			if err := checkKind(old.Value, n.Policy.Kind, n.Policy.Owner); err != nil {
				return err
			}
		}
		if err := u.actor.mayWriteTier(tx, k, n.Policy.Tier); err != nil {
			return err
		}
		if err := checkNoReplacement(tx, k); err != nil {
			return err
		}
		if err := ps.selectByLabels(tx, peers...); err != nil {
			return err
		}
		return tables.Replacements.Create(tx, tables.Replacement{Policy: k, ID: id})
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // not by the caller's context, whose end may be the reason
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
			defer cancel()
			_ = ps.commits.settle(ctx, Admin(), k, id) // what this leaves behind others find
		}
	}()
	if err := ps.commits.follow.WaitFor(ctx, rev); err != nil { // from then on, changes of rules end this
		return fmt.Errorf("%s: %w", what, err)
	}
	staged := differences(ps.policyView.AnyRulesOf(k), n.Rules)
	if err := ps.stageAll(ctx, u.actor, what, k, id, staged); err != nil {
		return err
	}
	_, err = u.updateOnce(ctx, what, ps.commits.follow.Update, func(tx store.Tx) error {
		r, err := stagedBy(tx, k, id)
		if err != nil {
			return err
		}
		if err := ps.putPolicy(tx, n.Policy); err != nil {
			return err
		}
		if err := touchPolicy(tx, k); err != nil {
			return err
		}
		if err := ps.selectByLabels(tx, peers...); err != nil { // staged rules were not visible
			return err
		}
		r.Done = true
		return tables.Replacements.Put(tx, r)
	})
	if err != nil {
		return err
	}
	if err := ps.commits.settle(ctx, Admin(), k, ""); err != nil {
		ps.commits.log.Debug("the rules of a policy are replaced; the staged rows are moved later", "policy", k.String(), "error", err)
	}
	return nil
}

// cleanupTime is how long a use-case that has failed may take to put things back.
const cleanupTime = 5 * time.Second

// stagedBy reads the replacement of a policy, if it is still the one of the id.
func stagedBy(tx store.Tx, p model.PolicyKey, id string) (tables.Replacement, error) {
	row, err := tables.Replacements.Find(tx, tables.ReplacementKey(p))
	if err == nil && row.Value.ID != id {
		err = model.Errorf(model.ErrConflict, "another client has changed policy %q or its rules meanwhile; this change was not made: try again", p)
	}
	return row.Value, err
}

// ruleChange is what a rule will be; field is where the request has it.
type ruleChange struct {
	tables.StagedRule
	field string
}

// differences says what has to change of the rules that there are.
func differences(have, want []model.PolicyRule) (out []ruleChange) {
	old := make(map[model.RuleKey]model.PolicyRule, len(have))
	for _, r := range have {
		old[r.Key] = r
	}
	for i, r := range want {
		if was, there := old[r.Key]; !there || !was.Equal(r) {
			out = append(out, ruleChange{tables.StagedRule{Key: r.Key, Rule: &want[i]}, fmt.Sprintf("rules[%d]", i)})
		}
		delete(old, r.Key)
	}
	for _, k := range slices.SortedFunc(maps.Keys(old), lessRule) {
		out = append(out, ruleChange{StagedRule: tables.StagedRule{Key: k}})
	}
	return out
}

// stage writes rules as staged, with references to what they name.
func stage(tx store.Tx, p model.PolicyKey, id string, rules []ruleChange) error {
	keys := []string{tables.Replacements.Key(tables.ReplacementKey(p))}
	for _, s := range rules {
		keys = append(keys, tables.StagedRules.Key(tables.StagedKey(s.Key)))
		if s.Rule == nil {
			continue
		}
		for _, t := range ruleTargets(*s.Rule) {
			keys = append(keys, t.key, tables.References.Key(t.reference(ruleReference, s.Key.String())))
		}
	}
	if err := tx.Prefetch(keys...); err != nil {
		return err
	}
	if _, err := stagedBy(tx, p, id); err != nil {
		return err
	}
	for _, s := range rules {
		if s.Rule != nil {
			if err := moveTargets(tx, ruleReference, s.Key.String(), nil, fieldsIn(s.field, ruleTargets(*s.Rule))); err != nil {
				return err
			}
		}
		if err := tables.StagedRules.Create(tx, s.StagedRule); err != nil {
			return err
		}
	}
	return nil
}

// stageAll stages rules in as many transactions as it takes.
func (ps *Policies) stageAll(ctx context.Context, a Actor, what string, p model.PolicyKey, id string, rules []ruleChange) error {
	var done atomic.Int64
	err := inParts(rules, func(some []ruleChange) error {
		_, err := ps.commits.as(a).updateOnce(ctx, what, ps.commits.follow.Update, func(tx store.Tx) error { return stage(tx, p, id, some) })
		if err == nil {
			done.Add(int64(len(some)))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; %d of %d changes are prepared, and none is applied", err, done.Load(), len(rules))
	}
	return nil
}

// settle ends the replacement of a policy's rules, if there is one, and if it has the id
// when one is given: rules in force become rows of Rules, and everything else staged goes.
func (c *Committer) settle(ctx context.Context, a Actor, p model.PolicyKey, id string) error {
	update := func(fn func(tx store.Tx, r tables.Row[tables.Replacement]) error) error {
		_, err := c.as(a).updateOnce(ctx, fmt.Sprintf("settle the rules of policy %q", p), c.follow.Update, func(tx store.Tx) error {
			row, err := tables.Replacements.Find(tx, tables.ReplacementKey(p))
			if err != nil || !row.Exists() || id != "" && row.Value.ID != id {
				return err
			}
			return fn(tx, row)
		})
		return err
	}
	for {
		var staged []tables.StagedRule
		of := ""
		err := update(func(tx store.Tx, r tables.Row[tables.Replacement]) (err error) {
			staged, of = nil, r.Value.ID // of a run that counts: the view may be older
			if r.Value.Done {
				if staged, err = readStaged(tx, p); err != nil || len(staged) > 0 {
					return err
				}
			}
			dropReplacement(tx, p)
			return nil
		})
		if err != nil || len(staged) == 0 {
			return err
		}
		id = of // the next one is not ours to end
		if err := inParts(staged, func(some []tables.StagedRule) error {
			return update(func(tx store.Tx, _ tables.Row[tables.Replacement]) error { return settleRules(tx, some) })
		}); err != nil {
			return err
		}
	}
}

// settleRules makes staged rules that are in force rows of Rules.
func settleRules(tx store.Tx, staged []tables.StagedRule) error {
	keys := make([]string, 0, 2*len(staged))
	for _, s := range staged {
		keys = append(keys, tables.Rules.Key(s.Key), tables.StagedRules.Key(tables.StagedKey(s.Key)))
	}
	if err := tx.Prefetch(keys...); err != nil {
		return err
	}
	for _, s := range staged {
		now, err := tables.StagedRules.Find(tx, tables.StagedKey(s.Key))
		if err != nil {
			return err
		}
		old, err := tables.Rules.Peek(tx, s.Key) // other changes settle it first
		switch {
		case err != nil:
			return err
		case !now.Exists(): // settled by somebody else
			continue
		case s.Rule == nil && old.Exists():
			dropRule(tx, old.Value)
		case s.Rule != nil:
			for _, t := range ruleTargets(old.Value) {
				if !ruleNames(*s.Rule, t.target) {
					removeReference(tx, t.target, ruleReference, s.Key.String())
				}
			}
			if err := tables.Rules.Put(tx, *s.Rule); err != nil {
				return err
			}
		}
		tables.StagedRules.Delete(tx, tables.StagedKey(s.Key))
	}
	return nil
}

// stalled are the replacements as the leader's last round found them.
type stalled map[model.PolicyKey]progress

type progress struct {
	id     string
	staged int
}

// sweepReplacements settles replacements of stopped netmasters: the ones in force, and the
// ones without progress since the last round.
func (ps *Policies) sweepReplacements(ctx context.Context, l Leader, v *View) error {
	now := stalled{}
	var over []model.PolicyKey
	v.mu.RLock()
	for k, r := range v.Policies.replacementRows {
		now[k] = progress{r.ID, v.Policies.rules.Staged(k)}
		if r.Done || now[k] == ps.stalled[k] {
			over = append(over, k)
		}
	}
	v.mu.RUnlock()
	ps.stalled = now
	for _, k := range over {
		if err := ps.commits.settle(ctx, l.Actor(), k, now[k].id); err != nil {
			return err
		}
	}
	return nil
}
