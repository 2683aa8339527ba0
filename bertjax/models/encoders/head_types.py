"""The kinds of models, by their heads. Imports nothing."""

ENCODER = "encoder"
PRE_TRAINING = "pre_training"
MASKED_LM = "masked_lm"
REPLACED_TOKENS = "replaced_tokens"  # which tokens another model has put in (ELECTRA)
CAUSAL_LM = "causal_lm"  # as MASKED_LM, reading left to right
PERMUTATION_LM = "permutation_lm"  # as MASKED_LM, trained to predict in any order (XLNet)
BIDIRECTIONAL_LM = "bidirectional_lm"  # the next word in each direction (ELMo)
SEQUENCE_CLASSIFICATION = "sequence_classification"
ANSWER_NETWORK = "answer_network"  # as SEQUENCE_CLASSIFICATION, of pairs that are read in steps
MULTIPLE_CHOICE = "multiple_choice"
TOKEN_CLASSIFICATION = "token_classification"
TAG_SEQUENCE = "tag_sequence"  # as TOKEN_CLASSIFICATION, with a CRF over the words
QUESTION_ANSWERING = "question_answering"

OF_WHOLE_TEXTS = (SEQUENCE_CLASSIFICATION, MULTIPLE_CHOICE)  # one output for a sequence
