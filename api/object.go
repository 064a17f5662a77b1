package api

// Link names another object.
type Link struct {
	Type string `json:"type,omitempty"` // object type, such as "network"
	Key  string `json:"key,omitempty"`
}

// LinkSet names many objects of one type by their keys.
type LinkSet map[string]Link

// Object is any configuration object.
type Object interface {
	// ObjectKey builds the key from the object's own fields.
	ObjectKey() string
}
