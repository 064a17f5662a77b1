package model

import (
	"fmt"
	"slices"
	"strings"
)

var _ = register(Kind{
	Collection: "extContractsGroups", Name: "extContractsGroup", Order: 110,
})

// ContractsType says what groups do with external contracts.
type ContractsType string

// The types of external contracts.
const (
	ContractsProvided ContractsType = "provided"
	ContractsConsumed ContractsType = "consumed"
)

// ParseContractsType parses a contracts group's type. The error is of kind ErrInvalid.
func ParseContractsType(s string) (ContractsType, error) {
	return parseEnum("contractsType", s, ContractsProvided, ContractsConsumed)
}

// ExtContractsKey names a group of external contracts within the cluster.
type ExtContractsKey struct {
	Tenant TenantName `json:"tenant"`
	Name   string     `json:"name"`
}

func (k ExtContractsKey) String() string { return string(k.Tenant) + ":" + k.Name }

// ParseExtContractsKey parses "tenant:contracts group". The error is of kind
// ErrInvalid.
func ParseExtContractsKey(s string) (ExtContractsKey, error) {
	t, n, err := parseKey("contractsGroupName", s, MaxName)
	return ExtContractsKey{t, n}, err
}

// ExtContracts is a group of contracts that exist outside, in an ACI fabric.
type ExtContracts struct {
	Key       ExtContractsKey `json:"key"`
	Type      ContractsType   `json:"type"`
	Contracts []string        `json:"contracts,omitempty"` // such as "uni/tn-common/brc-web"
}

// Limits of groups of external contracts.
const (
	MaxContracts    = 256
	MaxContractName = 512 // characters
)

// Validate checks all fields. The error is of kind ErrInvalid.
func (e ExtContracts) Validate() error {
	if _, err := ParseTenantName(string(e.Key.Tenant)); err != nil {
		return err
	}
	if err := parseName("contractsGroupName", e.Key.Name, MaxName); err != nil {
		return err
	}
	if _, err := ParseContractsType(string(e.Type)); err != nil {
		return err
	}
	if len(e.Contracts) > MaxContracts {
		return InvalidField("contracts", len(e.Contracts), fmt.Sprintf("must be at most %d", MaxContracts))
	}
	for i, c := range e.Contracts {
		if c == "" || strings.ContainsAny(c, " ,") {
			return InvalidField("contracts", c, "must not be empty, nor contain spaces or commas")
		}
		if err := checkText("contracts", c, MaxContractName); err != nil {
			return err
		}
		if slices.Contains(e.Contracts[:i], c) {
			return InvalidField("contracts", c, "must be named once")
		}
	}
	return nil
}
