/* forms.h - chooses how `--machines auto` divides a model: in how many stages, by a model of what a pass over one row takes
 * (forms.c). */
#ifndef AE_SESSION_GROUP_FORMS_H
#define AE_SESSION_GROUP_FORMS_H

#include "engine/weights/ranks.h"

/* A link between processes, as rounds see it. */
typedef struct ae_group_link {
    double latency;   /* seconds of a round of few bytes */
    double bandwidth; /* bytes that a process receives in a second; 0: unlimited */
} ae_group_link;

/* A number of stages, and the messages of a pass over one row. */
typedef struct ae_group_form {
    uint32_t n_stages;
    bool is_cut;       /* every half of a layer is cut over the ranks of its stage, or these stages are single ranks */
    uint32_t n_inner;  /* rounds within the stages, one after another */
    uint64_t inner;    /* bytes that the rank which receives most in a stage receives in these, of all stages together */
    uint32_t n_handed; /* rounds from stage to stage */
    uint64_t handed;   /* bytes that a rank receives in these */
    ae_group_link link; /* within the stages */
} ae_group_form;

#define AE_GROUP_FORMS 8 /* most forms that are looked at */

/* Lists the forms of a group of n processes: all ranks in one stage first, then stages of equal numbers of ranks, and last each
 * rank a stage; links are not set. shares NULL: equal ones. codes: as in ae_ranks_count. Returns their number in *n_forms. */
aerie_status ae_group_list_forms(ae_group_form *forms, uint32_t *n_forms, const ae_model *model, uint32_t n,
                                 const uint32_t *shares, bool codes, aerie_error *error);
/* Measures the links of all forms, some milliseconds each (more on slow networks). All ranks call it and get the same
 * numbers. */
aerie_status ae_group_measure_links(ae_comm *comm, ae_group_form *forms, uint32_t n_forms, aerie_error *error);
/* Returns the seconds of a pass over one row. reading: what all ranks together take for their weights; apart: the link between
 * ranks of different stages. */
double ae_group_seconds(const ae_group_form *form, double reading, const ae_group_link *apart);
/* Returns the best form: the first one that takes least, except that a later one must gain a twentieth. Forms that are not cut
 * are left out. The first form's link, which all ranks share, is that between stages. */
const ae_group_form *ae_group_best_form(const ae_group_form *forms, uint32_t n_forms, double reading);

#endif
