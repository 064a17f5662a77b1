package token

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestEarlierTokenIsBoundToItsTenants: a token of a version that noted no tenants' creation is
// for the tenants that exist when it is bound, by the upgrade or by its first use; a later one
// under the same name it does not rule.
func TestEarlierTokenIsBoundToItsTenants(t *testing.T) {
	for _, by := range []string{"the upgrade", "its use"} {
		mem := memoryStore(t)
		s, _ := newStore(t, mem)
		secret, made, err := s.Create(t.Context(), TokenRequest{Name: "anna", Grant: access.Grant{Role: access.TenantAdmin, Tenants: []string{"red", "blue"}}, Life: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		setTenant(t, mem, "blue", false)
		_, err = mem.Update(t.Context(), func(tx store.Tx) error {
			r, err := records.Get(tx, made.ID)
			if err != nil {
				return err
			}
			r.Since = nil
			return records.Put(tx, r)
		})
		if err == nil && by == "the upgrade" {
			err = s.RecordTenants(t.Context())
		} else if err == nil {
			_, err = s.Identify(t.Context(), secret)
		}
		if err != nil {
			t.Fatal(err)
		}
		if id, err := s.Identify(t.Context(), secret); err != nil || !slices.Equal(id.Grants[0].Tenants, []string{"red"}) {
			t.Errorf("bound by %s, one of its tenants does not exist: %+v, %v", by, id, err)
		}
		if all, err := s.List(t.Context()); err != nil || len(all) != 1 || !slices.Equal(all[0].Gone, []string{"blue"}) {
			t.Errorf("bound by %s, one of its tenants does not exist: %+v, %v", by, all, err)
		}
		setTenant(t, mem, "blue", true)
		if id, err := s.Identify(t.Context(), secret); err != nil || !slices.Equal(id.Grants[0].Tenants, []string{"red"}) {
			t.Errorf("bound by %s: %+v, %v", by, id, err)
		}
		setTenant(t, mem, "red", false)
		setTenant(t, mem, "red", true)
		if _, err := s.Identify(t.Context(), secret); refused(err) != http.StatusUnauthorized {
			t.Errorf("bound by %s, its tenants are others now: %v", by, err)
		}
		if all, err := s.List(t.Context()); err != nil || len(all) != 1 || !slices.Equal(all[0].Gone, []string{"red", "blue"}) {
			t.Errorf("bound by %s, it is listed as %+v, %v", by, all, err)
		}
	}
}
