package model

// Valid is a value that its Validate method has accepted: the proof that
// use-cases ask for. Only Check makes one that has a value.
type Valid[T Validator] struct {
	value   T
	checked bool
}

// Validator is a value that tells whether it may be kept.
type Validator interface{ Validate() error }

// Check validates a value. The error is the one of Validate, of kind ErrInvalid.
func Check[T Validator](value T) (Valid[T], error) {
	if err := value.Validate(); err != nil {
		return Valid[T]{}, err
	}
	return Valid[T]{value, true}, nil
}

// Value returns the value, which must not be changed where it is shared (slices,
// maps); the zero value when there is none.
func (v Valid[T]) Value() T { return v.value }

// Err returns nil for a value from Check, and an error of kind ErrInvalid for
// the zero Valid, which anybody can write down.
func (v Valid[T]) Err() error {
	if !v.checked {
		return Errorf(ErrInvalid, "a %T that nobody has validated", v.value)
	}
	return nil
}
