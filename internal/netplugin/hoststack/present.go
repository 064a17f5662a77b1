package hoststack

import (
	"slices"

	"github.com/google/nftables"
)

// Present reports whether the stack has tables of ours.
func Present() bool {
	c, err := nftables.New()
	if err != nil {
		return false
	}
	tables, err := c.ListTables()
	return err == nil && slices.ContainsFunc(tables, func(t *nftables.Table) bool {
		return t.Name == TableName || t.Name == GuardTable || t.Name == ServicesTable
	})
}
